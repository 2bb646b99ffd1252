package com.example;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.catalog.FunctionCatalog;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.functions.BoundFunction;
import org.apache.spark.sql.connector.catalog.functions.ScalarFunction;
import org.apache.spark.sql.connector.catalog.functions.UnboundFunction;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** A catalog of two functions: twice(n), and dice(n), which says that it is not deterministic. */
public class Functions implements FunctionCatalog {
  private String name;

  @Override
  public void initialize(String catalog, CaseInsensitiveStringMap options) {
    name = catalog;
  }

  @Override
  public String name() {
    return name;
  }

  @Override
  public Identifier[] listFunctions(String[] namespace) {
    return new Identifier[] {Identifier.of(namespace, "twice"), Identifier.of(namespace, "dice")};
  }

  @Override
  public UnboundFunction loadFunction(Identifier function) {
    return new Of(function.name());
  }

  private static final class Of implements UnboundFunction, ScalarFunction<Long> {
    private final String name;

    Of(String name) {
      this.name = name;
    }

    @Override
    public BoundFunction bind(StructType types) {
      return this;
    }

    @Override
    public String description() {
      return name;
    }

    @Override
    public String name() {
      return name;
    }

    @Override
    public DataType[] inputTypes() {
      return new DataType[] {DataTypes.LongType};
    }

    @Override
    public DataType resultType() {
      return DataTypes.LongType;
    }

    @Override
    public boolean isDeterministic() {
      return name.equals("twice");
    }

    @Override
    public Long produceResult(InternalRow row) {
      return isDeterministic() ? 2 * row.getLong(0) : (long) (row.getLong(0) * Math.random());
    }
  }
}
